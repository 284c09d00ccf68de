//! The seam between model graphs and devices: operations, the Backend trait, the reference backend.
