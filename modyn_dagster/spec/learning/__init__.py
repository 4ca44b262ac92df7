"""Parts of a training's spec: models, optimizers, parsers, transforms and downsampling."""
