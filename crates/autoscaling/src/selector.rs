//! Label selectors.

/// Something that has labels.
pub trait Labels {
    /// The value of one label.
    fn value(&self, key: &str) -> Option<&str>;
}
