"""Networks of transformers, torchvision and timm."""
