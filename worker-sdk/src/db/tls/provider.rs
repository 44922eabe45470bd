//! Providers of PostgreSQL that users meet, and where each has its root certificate.

/// The suffix of a host, and the remedy for a certificate of an unknown authority there.
const PROVIDERS: [(&str, &str); 9] = [
    (
        ".rds.amazonaws.com",
        "Amazon RDS: download global-bundle.pem (RDS guide, Using SSL/TLS), and set sslrootcert to that file",
    ),
    (
        ".rds.amazonaws.com.cn",
        "Amazon RDS in China: fetch the bundle that its guide lists for the region, and set sslrootcert to that file",
    ),
    (
        ".sql.goog",
        "Google Cloud SQL: download server-ca.pem of the instance (Connections, Security), and set sslrootcert \
         to that file",
    ),
    (
        ".postgres.database.azure.com",
        "Azure Database: its roots are public (DigiCert Global Root G2, Microsoft RSA Root 2017): bring the root \
         certificates of this system up to date, or set sslrootcert to a file of both",
    ),
    (
        ".supabase.co",
        "Supabase: download the certificate of the project (Database, SSL Configuration), and set sslrootcert to \
         that file",
    ),
    (
        ".supabase.com",
        "Supabase: download the certificate of the project (Database, SSL Configuration), and set sslrootcert to \
         that file",
    ),
    (
        ".neon.tech",
        "Neon: its root is public (ISRG Root X1): set sslrootcert=system, and bring the root certificates of this \
         system up to date",
    ),
    (
        ".aivencloud.com",
        "Aiven: download the CA certificate of the service (Overview), and set sslrootcert to that file",
    ),
    (
        ".postgresbridge.com",
        "Crunchy Bridge: download the certificate of the team (Settings), and set sslrootcert to that file",
    ),
];

/// The remedy for a certificate of an unknown authority.
pub(super) fn remedy(host: &str) -> &'static str {
    let host = host.to_ascii_lowercase();
    match PROVIDERS.iter().find(|(suffix, _)| host.ends_with(suffix)) {
        Some((_, remedy)) => remedy,
        None => "set sslrootcert to the PEM file of the authority that signed it",
    }
}
