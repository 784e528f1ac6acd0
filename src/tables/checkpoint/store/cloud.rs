//! Creates the client for `s3://`, `gs://` and `az://`; credentials and regions come from the usual environment variables.

use std::sync::Arc;

use super::objects::Objects;
use crate::error::{Error, Result};

pub(super) fn connect(operation: &'static str, target: &str) -> Result<Objects> {
    let rejected = |received: String| {
        let expected = format!("a URL such as s3://bucket/folder, not `{target}`");
        Error::usage(operation, expected, received, "check the URL and the variables of the environment")
    };
    let url = target.parse().map_err(|error| rejected(format!("{error}")))?;
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?.to_ascii_lowercase(), value.into_string().ok()?))
    };
    let variables = std::env::vars_os().filter_map(text);
    let (store, prefix) =
        object_store::parse_url_opts(&url, variables).map_err(|error| rejected(error.to_string()))?;
    Objects::new(operation, target, Arc::from(store), prefix)
}
