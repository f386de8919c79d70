//! What the API server does to HorizontalPodAutoscalers of autoscaling/v2 when they are written.

pub(crate) mod decode;
pub(crate) mod defaults;
pub(crate) mod v1;
pub(crate) mod validation;
