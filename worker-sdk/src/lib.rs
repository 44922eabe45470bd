//! Schedule Tuskline tasks and run workers.
