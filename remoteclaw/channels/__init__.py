"""Chat channels: one adapter per platform, and a relay that delivers replies for all of them."""
