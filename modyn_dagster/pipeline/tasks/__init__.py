"""Tasks of pipelines: settings that do not go with what their models learn."""
