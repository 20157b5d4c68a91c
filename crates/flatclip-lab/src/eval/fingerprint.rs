//! Short name of a run's samples, for provenance.

use super::plan::Plan;
use crate::data::Dataset;
use flatclip::digest::Digest;

/// Names a stream by its samples, their labels and their order.
pub(crate) fn stream_hash(dataset: &Dataset, plan: &Plan) -> String {
    let samples = plan.order.iter().map(|&index| &dataset.samples[index]);
    samples.fold(Digest::default(), |digest, sample| digest.part(&sample.id).number(sample.label)).short()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_and_their_order_count() {
        let dir = crate::data::tree::tree(&["a/1.jpg", "b/2.jpg", "b/3.jpg"]);
        let data = crate::data::open(&format!("folder:{}", dir.path().display()), &Default::default()).unwrap();
        assert_ne!(stream_hash(&data, &Plan::new(3, None, None)), stream_hash(&data, &Plan::new(3, Some(2), None)));
    }
}
