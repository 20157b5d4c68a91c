//! Run directories, tables, figures, pages.
