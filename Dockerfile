# One image for all services: `modyn-dagster services run webserver|daemon|code|mlflow`, and for every other command.
# The steps are scripts (deploy/image), which the tests run without Docker. docs/deploy.md
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
# Extras of setup.py beside dagster, mlflow and report, separated by commas, such as `text`; and another index for pip, such as that of torch for CPUs alone.
ARG EXTRAS=
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN sh deploy/image/build.sh /opt/modyn "${EXTRAS}"

FROM ${BASE}
COPY --from=build /opt/modyn /opt/modyn
COPY deploy/image dagster.yaml deploy/workspace.yaml /usr/local/lib/modyn/
ENV PATH=/opt/modyn/bin:$PATH \
    DAGSTER_HOME=/etc/modyn \
    HOME=/tmp \
    MODYN_HOME=/state \
    MODYN_PROJECT=/project \
    PYTHONUNBUFFERED=1
RUN sh /usr/local/lib/modyn/runtime.sh /opt/modyn
USER 10001:10001
RUN sh /usr/local/lib/modyn/check.sh /opt/modyn
WORKDIR /project
VOLUME /state
HEALTHCHECK --interval=30s --timeout=20s --start-period=120s --retries=3 CMD ["modyn-health"]
# No entry point: Dagster's charts and launchers give whole commands.
CMD ["modyn-dagster", "services", "run", "--help"]
