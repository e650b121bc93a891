"""What `gateway.py` measures with: a load generator, an upstream, and the proxies between them."""
