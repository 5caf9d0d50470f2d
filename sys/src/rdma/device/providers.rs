//! Which drivers of devices are in this program: made by build.rs from what is installed.

use std::ffi::c_void;

include!(concat!(env!("OUT_DIR"), "/providers.rs"));

/// Each of them, for `ibv_static_providers`: named here, since a linker drops what nobody names.
pub(super) fn each() -> impl Iterator<Item = *const c_void> {
    all().into_iter()
}
