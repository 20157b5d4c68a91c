//! What a page shows of one view: its own prediction, its place in the image, and the loss around the prompt.

use super::ViewFeatures;
use super::answer::most_probable;
use super::classifier::Classifier;
use crate::image::views::{Draw, draw_view};
use crate::methods::probability::softmax;
use crate::surface::{Directions, Grid, Normalisation, Probe, Surface};
use crate::{Error, Result};

/// A small surface of the loss around a prompt.
#[derive(Clone, Copy, Debug)]
pub struct SliceRequest {
    /// Which view's entropy.
    pub view: usize,
    /// Grid points along each axis.
    pub points: usize,
    /// Length of both directions; the grid reaches from minus to plus this. STSS looks at the sphere of its own radius.
    pub radius: f32,
    /// Seed of the two directions.
    pub seed: u64,
}

impl Classifier {
    /// What was drawn for each view of an image of this size and digest: where it was cut, whether it was mirrored.
    pub fn view_draws(&self, image: &crate::Image) -> Result<Vec<Draw>> {
        let (options, id) = (self.view_options()?, image.digest());
        let key = self.key(&id);
        Ok((0..options.count).map(|view| draw_view(image.width, image.height, options, key, view)).collect())
    }

    /// The prediction of each view at the unadapted prompt: the `top` most probable classes as (index, probability).
    pub fn view_answers(&self, views: &ViewFeatures, top: usize) -> Vec<Vec<(usize, f32)>> {
        let ranked = |row: &[f32]| most_probable(softmax(row).into_iter().map(|p| p as f32), top);
        self.task().logits(&views.unit).iter_rows().map(ranked).collect()
    }

    /// The entropy of one view on a grid of two random directions around the prompt, `[points][points]`, the centre being
    /// the prompt itself. `on_row` gets each row as it is finished; an error from it ends the work.
    pub fn loss_slice(
        &self,
        views: &ViewFeatures,
        request: SliceRequest,
        mut on_row: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<Surface> {
        if request.view >= views.unit.rows() {
            let reason = format!("expected one of {} views, found {}", views.unit.rows(), request.view);
            return Err(Error::config("view", reason));
        }
        let task = self.task();
        let (side, context) = (task.text_side(self.method())?, task.start_context(self.method())?);
        let directions = Directions::random(context, Normalisation::Radius(request.radius), request.seed)?;
        let grid = Grid::new(request.points, 1.0)?;
        let features = views.unit.select_rows(&[request.view]);
        let probe = Probe { name: format!("view {}", request.view), features, labels: None };
        let row = |row: &[Vec<f32>]| on_row(&row[0]);
        let scale = task.logit_scale;
        let found =
            Surface::compute(side.tower, side.tokens, context, &directions, &grid, scale, &[probe], Vec::new(), row)?;
        found.into_iter().next().ok_or_else(|| Error::config("points", "the grid is empty"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::{Answer, Model};
    use crate::image::Image;

    fn seen() -> (Classifier, Image, Answer, ViewFeatures) {
        let model = Model::load("pocket").unwrap();
        let stss =
            Classifier::builder(&model).classes(["fish", "lamp", "boat"]).method("stss").views(8).build().unwrap();
        let image = Image { width: 50, height: 40, rgb: (0..6000u32).map(|i| (i % 251) as u8).collect() };
        let (answer, views) = stss.answer_and_features(&image).unwrap();
        (stss, image, answer, views)
    }

    #[test]
    fn the_centre_of_a_slice_is_the_entropy_of_the_view() {
        let (stss, _, answer, views) = seen();
        let request = SliceRequest { view: 3, points: 5, radius: 0.5, seed: 1 };
        let mut rows = 0;
        let surface = stss.loss_slice(&views, request, |row| {
            rows += 1;
            assert_eq!(row.len(), 5);
            Ok(())
        });
        let surface = surface.unwrap();
        assert_eq!((rows, surface.values.len()), (5, 5));
        let entropy = answer.view(3).entropy.unwrap();
        assert!((surface.values[2][2] - entropy).abs() < 1e-4, "{} {entropy}", surface.values[2][2]);
        assert!(surface.values[0][0] != surface.values[2][2]);
    }

    #[test]
    fn a_slice_ends_when_its_watcher_says_so_and_an_absent_view_is_named() {
        let (stss, _, _, views) = seen();
        let request = SliceRequest { view: 0, points: 5, radius: 0.5, seed: 1 };
        let mut rows = 0;
        let stopped = stss.loss_slice(&views, request, |_| {
            rows += 1;
            Err(Error::Interrupted("moved on".to_owned()))
        });
        assert_eq!((rows, stopped.unwrap_err().code()), (1, "interrupted"));
        let absent = stss.loss_slice(&views, SliceRequest { view: 8, ..request }, |_| Ok(()));
        assert!(absent.unwrap_err().to_string().starts_with("view: expected one of 8"));
    }

    #[test]
    fn views_say_where_they_lie_and_what_they_mean() {
        let (stss, image, answer, views) = seen();
        let draws = stss.view_draws(&image).unwrap();
        assert!(draws.len() == 8 && draws[0].crop.is_none() && draws[1].crop.is_some());
        let says = stss.view_answers(&views, 2);
        for (view, ranked) in says.iter().enumerate() {
            assert_eq!(ranked.len(), 2);
            assert_eq!(Some(stss.classes()[ranked[0].0].as_str()), answer.view(view).label);
            assert!(ranked[0].1 >= ranked[1].1);
        }
    }
}
