//! Decoding, defaults, conversion and validation of HorizontalPodAutoscalers.

pub(crate) mod decode;
pub(crate) mod defaults;
pub(crate) mod v1;
pub(crate) mod validation;
