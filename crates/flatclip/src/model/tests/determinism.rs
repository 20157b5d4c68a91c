//! The same bytes for any batch and any number of threads, on shapes that reach the fast paths: attention in tiles, several
//! passes over k, ragged edges of blocks.

use super::super::{Clip, LoadOptions, Precision};
use super::draws;
use crate::architecture::{ClipConfig, ImageConfig, Projection, VitForm};
use crate::weights::random_of;
use flatclip_tensor::Matrix;

/// Towers whose rows and widths are no multiples of any tile.
fn towers() -> [ClipConfig; 5] {
    let mut vit = ClipConfig::named("ViT-B-16").unwrap();
    (vit.embed_dim, vit.image_size, vit.text) = (20, 48, None);
    vit.image = ImageConfig::Vit { width: 72, layers: 2, heads: 3, patch: 8, mlp: 300, form: VitForm::CLIP };
    let mut resnet = ClipConfig::named("RN50").unwrap();
    (resnet.embed_dim, resnet.image_size, resnet.text) = (20, 64, None);
    resnet.image = ImageConfig::ResNet { width: 16, blocks: [1, 1, 1, 1], heads: 4 };
    let [siglip, pe, eva] = [VitForm::siglip(3, 300), VitForm::pe_core(true, 300), VitForm::EVA02].map(|form| {
        let mut other = vit.clone();
        other.image = ImageConfig::Vit { width: 72, layers: 2, heads: 3, patch: 8, mlp: 300, form };
        other.embed_dim = if form.projection == Projection::None { 72 } else { 20 };
        other
    });
    [vit, resnet, siglip, pe, eva]
}

#[test]
fn towers_give_the_same_bytes_for_any_batch_and_any_threads_in_every_precision() {
    for config in towers() {
        let size = 3 * config.image_size * config.image_size;
        let pixels = draws("pixels", 8 * size);
        let mut of_precision = Vec::new();
        for precision in Precision::ALL {
            let clip = Clip::load(&random_of(&config, 5), LoadOptions { precision, ..LoadOptions::default() }).unwrap();
            let whole = clip.encode_images(&pixels, 8).unwrap();
            for threads in [1, 2, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                for batch in [1, 3, 8] {
                    let encode = || pixels.chunks(batch * size).map(|p| clip.encode_images(p, p.len() / size).unwrap());
                    let parts: Vec<f32> = pool.install(|| encode().flat_map(|part| part.into_vec()).collect());
                    assert!(parts == whole.data(), "{}: {threads} threads, batch {batch}", precision.name());
                }
            }
            of_precision.push(whole);
        }
        // Both round, and fixed point less than bf16.
        let far =
            |a: &Matrix| a.data().iter().zip(of_precision[0].data()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let [bf16, i16] = [&of_precision[1], &of_precision[2]].map(far);
        assert!(0.0 < i16 && 4.0 * i16 < bf16, "i16 is {i16} off, bf16 {bf16}");
    }
}
