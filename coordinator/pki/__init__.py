"""Certificates of the fabric: the certificate authority, its server, renewal."""
