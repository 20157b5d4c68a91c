//! The CLIP towers, frozen, with gradients for contexts only.
