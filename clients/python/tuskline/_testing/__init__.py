"""The parts of `tuskline.testing`."""
