//! W3C Trace Context: where a task was scheduled, on its way to the attempts.
//!
//! Promises: a task without a trace costs nothing. Must never: fail an attempt for its trace.

use crate::error::{Code, Error};

/// Lengths of version, trace, span and flags, in hexadecimal digits.
const PARTS: [usize; 4] = [2, 32, 16, 2];

/// # Errors
/// TK054: the text is not a traceparent.
pub(crate) fn check(traceparent: &str) -> Result<(), Error> {
    let is_hex = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let is_zero = |part: &str| part.bytes().all(|b| b == b'0');
    let parts: Vec<&str> = traceparent.split('-').collect();
    // The standard forbids version ff, and a trace or span of zeros.
    if parts.iter().map(|part| part.len()).eq(PARTS)
        && parts.iter().all(|part| is_hex(part))
        && parts[0] != "ff"
        && !is_zero(parts[1])
        && !is_zero(parts[2])
    {
        return Ok(());
    }
    let got: String = traceparent.chars().take(80).collect();
    let text = format!(
        "a traceparent must be 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, neither number 0, got {got:?}"
    );
    Err(Error::refused(Code::InvalidTraceparent, text))
}

/// The traceparent of the span that the caller is in.
#[cfg(feature = "opentelemetry")]
pub(crate) fn current() -> Option<String> {
    use opentelemetry::trace::TraceContextExt;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    let context = tracing::Span::current().context();
    let span = context.span().span_context().clone();
    let flags = span.trace_flags().to_u8();
    span.is_valid().then(|| format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id()))
}

/// Without the feature `opentelemetry` no span has a trace.
#[cfg(not(feature = "opentelemetry"))]
pub(crate) fn current() -> Option<String> {
    None
}

/// Links a span to where its task was scheduled. A link and not a parent: the span that scheduled it may have
/// ended days ago, and several attempts may follow from it.
#[cfg(feature = "opentelemetry")]
pub(crate) fn link(span: &tracing::Span, traceparent: &str) {
    use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    let mut parts = traceparent.split('-').skip(1);
    let mut part = || parts.next().unwrap_or_default();
    let (trace, id) = (TraceId::from_hex(part()), SpanId::from_hex(part()));
    let flags = u8::from_str_radix(part(), 16).map(TraceFlags::new);
    if let (Ok(trace), Ok(id), Ok(flags)) = (trace, id, flags) {
        span.add_link(SpanContext::new(trace, id, flags, true, TraceState::default()));
    }
}

/// Without the feature `opentelemetry` the span shows the traceparent as a field.
#[cfg(not(feature = "opentelemetry"))]
pub(crate) fn link(span: &tracing::Span, traceparent: &str) {
    span.record("traceparent", traceparent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_has_four_parts_of_lowercase_hexadecimal_digits() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(check(good).is_ok());
        let zero = |part: &str| good.replace(part, &"0".repeat(part.len()));
        for bad in [
            "",
            "00",
            &good[..54],
            &good.to_uppercase(),
            &format!("{good}-00"),
            "é",
            &zero(&good[3..35]),
            &zero(&good[36..52]),
            &format!("ff{}", &good[2..]),
        ] {
            assert_eq!(
                check(bad).map_err(|error| error.code()),
                Err(Some(Code::InvalidTraceparent)),
                "{bad}"
            );
        }
        assert!(check(&format!("cc{}", &good[2..])).is_ok(), "a later version");
    }
}
