# Of the image's dagster.yaml, that of an installation whose replays go to the Ray cluster of compose.yaml.
s/modyn_dagster\.resources\.run_launcher$/modyn_dagster.resources.ray_launcher/
s/WatchingRunLauncher$/RoutingRunLauncher/
/^    ask_code_server: /a\
    ray:\
      address: http://ray-head:8265
/^  poll_interval_seconds: /a\
  start_timeout_seconds: 1000
