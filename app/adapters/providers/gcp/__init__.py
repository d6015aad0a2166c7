"""Google Cloud: machines of Compute Engine through its own client, and their prices.

Imported only where `gcp` is switched on, and only by the worker: the client costs some 140 MB.
"""
