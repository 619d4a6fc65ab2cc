"""Offers, prices and limits of the clouds.

Nothing in this package changes a cloud.
"""
