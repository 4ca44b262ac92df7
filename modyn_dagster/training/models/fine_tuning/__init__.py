"""Fine-tuning of networks: partially loaded weights, frozen parameters, rates by layer, and low-rank adapters."""
