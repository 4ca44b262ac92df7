# Final stage of the image: the account, its folders, and the guard in front of Dagster's pages. Run as root.
# Usage: sh runtime.sh <folder of the environment>; `dagster.yaml` and `workspace.yaml` are beside this script.
set -eu
target=$1
here=$(dirname "$0")
account=10001

groupadd --gid $account modyn
useradd --uid $account --gid $account --no-create-home --home-dir /state --shell /usr/sbin/nologin modyn

# /state is a volume: it takes over account and mode of this folder when it is first mounted.
install -d -o $account -g $account -m 0700 /state
install -d -m 0755 /project /etc/modyn
install -m 0644 "$here/dagster.yaml" "$here/workspace.yaml" /etc/modyn/
# The code location has a container of its own, and `services run code` in it.
sed -i 's/^    ask_code_server: false$/    ask_code_server: true/' /etc/modyn/dagster.yaml
# The same with replays on a Ray cluster, for MODYN_DAGSTER_HOME of compose.yaml.
install -d -m 0755 /etc/modyn/ray
sed -f "$here/ray.sed" /etc/modyn/dagster.yaml >/etc/modyn/ray/dagster.yaml
install -m 0644 "$here/workspace.yaml" /etc/modyn/ray/

# Dagster's own charts start `dagster-webserver`, which lets any page control it: in this image that name is the guarded server.
install -m 0755 "$here/webserver.sh" "$target/bin/dagster-webserver"
install -m 0755 "$here/health.sh" /usr/local/bin/modyn-health
install -m 0755 "$here/ray_node.sh" /usr/local/bin/modyn-ray-node
