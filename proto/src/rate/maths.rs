//! ln, exp, square and cube root.
//!
//! For: laws written with logarithms, the roots of CUBIC and of deviations, rates whose ratios count.
//! In and out: f64 to f64, relative error below 1e-9 over the whole range of finite positive numbers.
//! Invariants: no NaN for finite input; ln of what is not positive is ln of the smallest normal number.
//! Absent on purpose: std: these functions are not in `core`.

const LN_2: f64 = core::f64::consts::LN_2;

/// Natural logarithm: exponent from the bits, mantissa by the series of artanh.
pub fn ln(x: f64) -> f64 {
    let x = if x >= f64::MIN_POSITIVE { x.min(f64::MAX) } else { f64::MIN_POSITIVE };
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    let (mantissa, exponent) =
        if mantissa > core::f64::consts::SQRT_2 { (mantissa / 2.0, exponent + 1) } else { (mantissa, exponent) };
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let s2 = s * s;
    let (mut term, mut sum) = (s, 0.0);
    for k in 0..12 {
        sum += term / f64::from(2 * k + 1);
        term *= s2;
    }
    2.0 * sum + exponent as f64 * LN_2
}

/// e to the x; 0 and the greatest number at the ends of the range.
pub fn exp(x: f64) -> f64 {
    if x < -700.0 {
        return 0.0;
    }
    let x = if x < 700.0 { x } else { 700.0 };
    let twos = (x / LN_2) as i64;
    let rest = x - twos as f64 * LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..18 {
        term *= rest / f64::from(k);
        sum += term;
    }
    sum * f64::from_bits(((1023 + twos) as u64) << 52)
}

/// Square root of a number that is not negative.
pub fn sqrt(x: f64) -> f64 {
    if x >= f64::MIN_POSITIVE { exp(ln(x) / 2.0) } else { 0.0 }
}

/// Cube root of a number that is not negative: a guess from the exponent, then Newton.
pub fn cbrt(x: f64) -> f64 {
    if x.is_nan() || x <= f64::MIN_POSITIVE {
        return 0.0;
    }
    let x = x.min(f64::MAX);
    // A third of the exponent (the constant restores the bias): within 5 %.
    let mut y = f64::from_bits(x.to_bits() / 3 + 0x2A9F_7893_782D_A1CE);
    for _ in 0..5 {
        y -= (y - x / (y * y)) / 3.0;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_agree_with_std() {
        for step in -600..600 {
            let x = 10f64.powf(f64::from(step) / 2.0);
            assert!((ln(x) - x.ln()).abs() <= 1e-9 * x.ln().abs().max(1.0), "ln {x}");
            assert!((cbrt(x) / x.cbrt() - 1.0).abs() < 1e-9, "cbrt {x}");
            assert!((sqrt(x) / x.sqrt() - 1.0).abs() < 1e-9, "sqrt {x}");
            let y = f64::from(step);
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-9, "exp {y}");
        }
        assert!(ln(0.0).is_finite() && ln(-1.0).is_finite() && ln(f64::INFINITY).is_finite());
        assert!(cbrt(0.0) == 0.0 && cbrt(f64::NAN) == 0.0 && cbrt(f64::INFINITY).is_finite());
        assert!(exp(f64::INFINITY).is_finite() && exp(-1e9) == 0.0 && exp(f64::NAN).is_finite());
    }
}
