"""The wire protocol: `bce_auth` signs and verifies requests. Connections are in `net`."""
