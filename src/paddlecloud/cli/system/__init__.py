"""Commands about the platform itself, one module each: server, doctor, config, completion."""
