# Chromium (tests of the pages), Postgres (tests against a server that is not the embedded one), iproute2 (tests on hosts made of
# network namespaces), debootstrap (tests of the image in a bare Debian) and gcc's sanitizer runtimes (make sanitize), which come
# with gcc where nobody has taken them out.
# Installed as root; for anyone else the command is printed and the tests that need them are skipped.
missing=
command -v chromium >/dev/null || missing="$missing chromium"
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
command -v ip >/dev/null || missing="$missing iproute2"
[ -e /usr/sbin/debootstrap ] || missing="$missing debootstrap"
[ -e "$(gcc -print-file-name=libasan.so)" ] || missing="$missing libgcc-$(gcc -dumpversion)-dev"
[ -z "$missing" ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "test: tests that need$missing will be skipped; to run them, as root: apt-get install$missing" >&2
    exit 0
fi
echo "test: installing$missing"
export DEBIAN_FRONTEND=noninteractive
{ apt-get -q update && apt-get -q -y install --no-install-recommends $missing; } >/dev/null </dev/null ||
    echo "test: could not install$missing; the tests that need them will be skipped" >&2
