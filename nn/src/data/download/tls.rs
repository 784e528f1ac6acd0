//! TLS for downloads without a C compiler: Graviola's cryptography, if the CPU has the instructions that it needs.

use ureq::tls::{RootCerts, TlsConfig};

/// Graviola panics on a CPU that lacks one of these instruction sets.
#[cfg(target_arch = "x86_64")]
fn has_instructions() -> bool {
    use std::arch::is_x86_feature_detected as has;
    let vectors = has!("ssse3") && has!("avx") && has!("avx2");
    vectors && has!("aes") && has!("pclmulqdq") && has!("adx") && has!("bmi1") && has!("bmi2")
}

#[cfg(target_arch = "aarch64")]
fn has_instructions() -> bool {
    use std::arch::is_aarch64_feature_detected as has;
    has!("neon") && has!("aes") && has!("pmull") && has!("sha2")
}

/// How to open a connection to a server that one of these certification authorities vouches for.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) fn configure(roots: &RootCerts) -> Result<TlsConfig, String> {
    if !has_instructions() {
        let needed = "ADX, AES, AVX2, BMI and PCLMULQDQ on x86-64; AES, PMULL and SHA-2 on ARM";
        return Err(format!("this CPU lacks instructions that the TLS library needs ({needed})"));
    }
    let provider = std::sync::Arc::new(rustls_graviola::default_provider());
    let config = TlsConfig::builder().root_certs(roots.clone());
    Ok(config.unversioned_rustls_crypto_provider(provider).build())
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn configure(_: &RootCerts) -> Result<TlsConfig, String> {
    Err("TLS is only available on x86-64 and 64-bit ARM".into())
}
