//! Which samples a run visits, in which order, and which of them belong to a shard.

use crate::data::Dataset;
use flatclip::digest::Digest;
use flatclip::rng::Stream;
use flatclip::{Error, Result};
use serde::{Deserialize, Serialize};

/// Shard `index` of `count`: every `count`-th position of the stream, starting at `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shard {
    /// 0-based.
    pub index: usize,
    /// How many shards there are.
    pub count: usize,
}

impl std::str::FromStr for Shard {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.split_once('/').and_then(|(i, n)| Some((i.trim().parse().ok()?, n.trim().parse().ok()?)));
        match parsed {
            Some((index, count)) if index < count => Ok(Self { index, count }),
            _ => Err(Error::config("shard", format!("expected i/n with i from 0 to n-1, found `{text}`"))),
        }
    }
}

impl TryFrom<String> for Shard {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> Self {
        format!("{}/{}", shard.index, shard.count)
    }
}

/// The order of a run's stream: `order[position]` is a sample of the data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Sample indices by position, over all shards.
    pub order: Vec<usize>,
}

impl Plan {
    /// All `samples`, or `limit` of them spread evenly over the data set (so that a small run sees many classes), shuffled
    /// when an order seed is given.
    pub(crate) fn new(samples: usize, limit: Option<usize>, order_seed: Option<u64>) -> Self {
        let take = limit.unwrap_or(samples).min(samples);
        let mut order: Vec<usize> = (0..take).map(|i| i * samples / take.max(1)).collect();
        if let Some(seed) = order_seed {
            Stream::new(seed, &["order"]).shuffle(&mut order);
        }
        Self { order }
    }

    /// The positions of a shard (all of them without one), ascending.
    pub(crate) fn positions(&self, shard: Option<Shard>) -> Vec<usize> {
        let Shard { index, count } = shard.unwrap_or(Shard { index: 0, count: 1 });
        (index..self.order.len()).step_by(count).collect()
    }
}

/// Names a stream by its samples, their labels and their order.
pub(crate) fn stream_hash(dataset: &Dataset, plan: &Plan) -> String {
    let samples = plan.order.iter().map(|&index| &dataset.samples[index]);
    samples.fold(Digest::default(), |digest, sample| digest.part(&sample.id).number(sample.label)).short()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_every_position_once() {
        let plan = Plan::new(23, None, Some(4));
        for count in [1, 2, 3, 7, 40] {
            let shard = |index| plan.positions(Some(Shard { index, count }));
            let mut all: Vec<usize> = (0..count).flat_map(shard).collect();
            all.sort_unstable();
            assert_eq!(all, (0..23).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_limit_is_spread_and_an_order_seed_only_reorders() {
        assert_eq!(Plan::new(100, Some(4), None).order, [0, 25, 50, 75]);
        let mut shuffled = Plan::new(10, None, Some(1)).order;
        assert_ne!(shuffled, Plan::new(10, None, None).order);
        shuffled.sort_unstable();
        assert_eq!(shuffled, Plan::new(10, None, None).order);
        assert_eq!(Plan::new(0, Some(5), None).order, [0usize; 0]);
    }

    #[test]
    fn a_shard_is_written_as_it_is_read() {
        let shard: Shard = "2/7".parse().unwrap();
        assert_eq!(String::from(shard), "2/7");
        for bad in ["7/7", "1", "a/b", "-1/2", "0/0"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }

    #[test]
    fn samples_and_their_order_count() {
        let dir = crate::data::tree::tree(&["a/1.jpg", "b/2.jpg", "b/3.jpg"]);
        let data = crate::data::open(&format!("folder:{}", dir.path().display()), &Default::default()).unwrap();
        assert_ne!(stream_hash(&data, &Plan::new(3, None, None)), stream_hash(&data, &Plan::new(3, Some(2), None)));
    }
}
