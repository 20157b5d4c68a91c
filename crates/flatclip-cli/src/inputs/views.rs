//! `--views`: a number of views, or as few as an answer needs.

use anyhow::{Result, bail};
use flatclip::Certainty;

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ViewArgs {
    /// Views per image, the image itself included, or `auto`: rounds of 1, 4, 8, .. views, and no more of them once
    /// the answer is certain [default: what the method wants]
    #[arg(long, value_name = "N|auto")]
    views: Option<Views>,
    /// With --views auto: the mean probability of the answer over the selected views at which no more are
    /// made [default: 0.7 at a logit scale of 100 and above, less below: 0.35 for the embedded models]
    #[arg(long, value_name = "P")]
    certainty: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Views {
    Auto,
    Count(usize),
}

impl std::str::FromStr for Views {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("auto", _) => Ok(Self::Auto),
            (_, Ok(count)) => Ok(Self::Count(count)),
            _ => Err("expected a whole number or auto".to_owned()),
        }
    }
}

impl ViewArgs {
    pub(crate) fn count(&self) -> Option<usize> {
        match self.views {
            Some(Views::Count(count)) => Some(count),
            _ => None,
        }
    }

    /// For any-time views, the certainty at which they end.
    pub(crate) fn certainty(&self) -> Result<Option<Certainty>> {
        match (self.views, self.certainty) {
            (Some(Views::Auto), certainty) => Ok(Some(certainty.map_or(Certainty::Usual, Certainty::At))),
            (_, Some(_)) => bail!("--certainty is for any-time views: give --views auto with it"),
            (_, None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_a_number_or_auto_and_a_certainty_needs_auto() {
        let args = |views: &str, certainty| ViewArgs { views: Some(views.parse().unwrap()), certainty };
        assert_eq!((args("16", None).count(), args("16", None).certainty().unwrap()), (Some(16), None));
        assert_eq!(
            (args("auto", None).count(), args("auto", None).certainty().unwrap()),
            (None, Some(Certainty::Usual))
        );
        assert_eq!(args("auto", Some(0.5)).certainty().unwrap(), Some(Certainty::At(0.5)));
        assert!(args("16", Some(0.5)).certainty().unwrap_err().to_string().contains("--views auto"));
        assert!("few".parse::<Views>().is_err());
    }
}
