"""Fingerprints: small files that say of copies what a comparison needs, so that their disks need not meet."""
