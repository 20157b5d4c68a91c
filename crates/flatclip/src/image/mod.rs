//! Pixels: decode, resize, crop, normalise, augment, views.
