//! Who is alive, who owns, who may, who has a copy.
