"""What administrators see: health checks of the installation, overview of pools and jobs."""
