"""Rules about who may run what where: admission, pools, quotas, priorities."""
