"""The campaigns, one module each, with ``run(trials, seed, log) -> CampaignResult``."""
