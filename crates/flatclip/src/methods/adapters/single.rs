//! What methods that look at one view of an image share.

use crate::methods::aggregate::Ballot;
use crate::methods::select::{LowestScore, Score, Selector, ViewLogits};
use crate::methods::{Decision, Task, ViewSet};

/// The answer `probabilities` for an image of which view 0 alone was looked at.
pub(super) fn first_view(task: &Task, image: &ViewSet<'_>, probabilities: &[f64]) -> Decision {
    let first = image.features.select_rows(&[0]);
    let views = ViewLogits::from_logits(task.logits(&first));
    let selection = LowestScore { fraction: 1.0, score: Score::Entropy }.select(&first, &views);
    Ballot::from_probabilities(probabilities).answer(views.explain(selection))
}
