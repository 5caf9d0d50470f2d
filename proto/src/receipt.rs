//! What both ends sign at the end.
