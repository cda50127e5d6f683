//! Why something failed, as bits of one u64 (the numbers of the HCE Distributed Crawler).
