//! A pocket world: 32 classes drawn by code in seven styles, and the small CLIP models trained on it.
