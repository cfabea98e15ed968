//! The images of a history as a request may carry them. What our tools give is fit for every provider; a history of other origin holds
//! anything, and a provider that refuses one image refuses every later request. So each is looked at once more where requests are
//! written: one that is too large is made smaller, one that is none is told in words, and when there are too many the oldest are too.
//! The history and its trace stay as they are.

use std::borrow::Cow;

use toolgate_core::message::ModelMessage;
use toolgate_runtime::image::{Picture, fits};

/// Images of one request at most; the least that a provider takes (Anthropic: 100).
const MOST_IMAGES: usize = 100;

/// Bytes of all images of one request at most, in base64. Requests end at 20 MB (Gemini) or 32 MB (Anthropic), and words want room too.
const MOST_BYTES: usize = 16_000_000;

/// How much is left after the oldest had to go, out of all: the beginning of a conversation changes then, and with it all that a
/// provider has cached, so that it should be seldom.
const KEPT: usize = 2;

/// An image that the model can see.
#[derive(Debug, Clone)]
pub(super) enum Image<'a> {
    /// Base64.
    Data { mime: &'a str, data: Cow<'a, str> },
    /// `http` or `https`.
    Url(&'a str),
}

impl<'a> Image<'a> {
    /// The image that a history has at this address.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub(super) fn at(url: &'a str) -> Result<Self, String> {
        if url.starts_with("https://") || url.starts_with("http://") {
            return Ok(Self::Url(url));
        }
        match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((mime, data)) => Self::of(mime, data),
            None => Err("its address is none that can be sent".into()),
        }
    }

    /// The image in these words of base64.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub(super) fn of(mime: &'a str, data: &'a str) -> Result<Self, String> {
        if fits(mime, data) {
            return Ok(Self::Data { mime, data: data.into() });
        }
        let picture = Picture::of_base64(data).map_err(|error| error.to_string())?;
        Ok(Self::Data { mime: picture.kind().mime(), data: picture.base64().into() })
    }

    /// The same as a PNG, where it is a GIF.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn no_gif(self) -> Result<Self, String> {
        match &self {
            Self::Data { mime: "image/gif", data } => {
                let picture =
                    Picture::of_base64(data).and_then(Picture::into_png).map_err(|error| error.to_string())?;
                Ok(Self::Data { mime: picture.kind().mime(), data: picture.base64().into() })
            }
            _ => Ok(self),
        }
    }

    /// As one address.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Data { mime, data } => format!("data:{mime};base64,{data}"),
            Self::Url(url) => (*url).to_owned(),
        }
    }
}

/// The first message of a history whose images are sent; those before it have become too many. It moves on in leaps, and depends on
/// nothing but the history.
pub(super) fn first_shown(history: &[ModelMessage]) -> usize {
    let (mut first, mut count, mut bytes) = (0, 0, 0);
    for (at, message) in history.iter().enumerate() {
        let (more, longer) = weight(message);
        (count, bytes) = (count + more, bytes + longer);
        if count <= MOST_IMAGES && bytes <= MOST_BYTES {
            continue;
        }
        while first < at && (count > MOST_IMAGES / KEPT || bytes > MOST_BYTES / KEPT) {
            let (less, shorter) = weight(&history[first]);
            (count, bytes) = (count - less, bytes - shorter);
            first += 1;
        }
    }
    first
}

/// How many images a message has, and how many bytes they are.
fn weight(message: &ModelMessage) -> (usize, usize) {
    match message {
        ModelMessage::ToolCallOutput(result) => (result.images.len(), result.images.iter().map(String::len).sum()),
        ModelMessage::ImageUrl(image) => (1, image.image_url.len()),
        ModelMessage::InlineData(inline) if inline.mime_type.starts_with("image/") => (1, inline.data.len()),
        _ => (0, 0),
    }
}
