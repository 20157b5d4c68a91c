//! OpenAI's `POST /v1/embeddings`, for texts.

use crate::Problem;
use crate::answer::{Row, json_response};
use crate::routes::embed::{check_texts, embed_texts, rows_bytes};
use crate::typed::OneOrSeveral;
use crate::upload::Upload;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Texts to embed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmbeddingsRequest {
    /// A text, or several.
    #[schema(value_type = Input)]
    input: OneOrSeveral,
    /// Name of a model.
    #[schema(example = "pocket")]
    model: String,
    /// `float` or `base64` (little-endian f32).
    #[schema(nullable = false)]
    encoding_format: Option<EncodingFormat>,
    /// Width of the rows; only the model's own is possible.
    #[schema(nullable = false, example = 128)]
    dimensions: Option<usize>,
    /// Ignored.
    #[schema(nullable = false)]
    #[allow(dead_code)]
    user: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EncodingFormat {
    Float,
    Base64,
}

// How `OneOrSeveral` is described.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum Input {
    One(String),
    Several(Vec<String>),
}

/// Rows, in the order of the texts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EmbeddingsBody {
    object: &'static str,
    data: Vec<EmbeddingRow>,
    model: String,
    usage: Usage,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EmbeddingRow {
    object: &'static str,
    index: usize,
    #[schema(value_type = Embedding)]
    embedding: Written,
}

// How `Written` is described.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum Embedding {
    Numbers(Vec<f64>),
    Base64(String),
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Written {
    Numbers(Row),
    Base64(String),
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// Texts that are counted by the thread that serves the connection.
const FEW_TEXTS: usize = 8;

/// Unit-norm features of texts, as OpenAI's clients read them.
#[utoipa::path(
    post, path = "/v1/embeddings", tag = "other forms", request_body = EmbeddingsRequest,
    responses((status = 200, description = "The rows", body = EmbeddingsBody))
)]
pub(crate) async fn embeddings(mut upload: Upload) -> Result<Response, Problem> {
    let request: EmbeddingsRequest = upload.json().await?;
    let caller = upload.into_caller();
    let OneOrSeveral(texts) = request.input;
    let catalogue = caller.app.catalogue();
    let (name, model) = catalogue.model(Some(&request.model))?;
    if let Some(width) = request.dimensions.filter(|&width| width != model.width()) {
        return Err(Problem::invalid("dimensions", format_args!("expected {}, found {width}", model.width())));
    }
    check_texts(&texts, &caller.app.config.limits)?;
    let memory = caller.answer_memory(rows_bytes(texts.len(), model))?;
    let (own, tokenizer) = (texts.clone(), model.tokenizer().clone());
    let count = move || Ok(own.iter().map(|text| tokenizer.encode(text).len() + 2).sum());
    let tokens = caller.app.apart(texts.len() > FEW_TEXTS, count).await?;
    let rows = embed_texts(&caller, model, texts, false).await?;
    let as_base64 = request.encoding_format == Some(EncodingFormat::Base64);
    let row = |(index, row): (usize, Vec<f32>)| {
        let embedding = if as_base64 {
            Written::Base64(STANDARD.encode(row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()))
        } else {
            Written::Numbers(Row(row))
        };
        EmbeddingRow { object: "embedding", index, embedding }
    };
    let body = EmbeddingsBody {
        object: "list",
        data: rows.into_iter().enumerate().map(row).collect(),
        model: name.to_owned(),
        usage: Usage { prompt_tokens: tokens, total_tokens: tokens },
    };
    json_response(&body, memory)
}
