//! Colours that people with any kind of colour vision tell apart (Okabe and Ito), and fonts.

pub(crate) const BLUE: &str = "#0072b2";
pub(crate) const ORANGE: &str = "#e69f00";
pub(crate) const VERMILLION: &str = "#d55e00";
pub(crate) const GREEN: &str = "#009e73";
pub(crate) const GREY: &str = "#9aa5b1";

/// Of all text; what has none of them draws with any.
pub(crate) const FONTS: &str = "DejaVu Sans, Verdana, sans-serif";

/// Paler ones of the first two, for lines below them.
pub(crate) const PALE_BLUE: &str = "#a9cfe8";
pub(crate) const PALE_ORANGE: &str = "#f6d999";
/// Of a heat map, from many to few: one hue, so that darker is always more.
pub(crate) const HEAT: [&str; 7] = [
    "#08214d", "#08519c", "#2b7bba", "#539ecd", "#89bedc", "#b8d5ea", "#dbe7f3",
];

/// The colour of the series with this index; they repeat after eight.
pub(crate) fn series_color(index: usize) -> &'static str {
    SERIES[index % SERIES.len()]
}

/// The colour of a contestant by its place among those of its run; they repeat after seven.
pub(crate) fn contestant_color(index: usize) -> &'static str {
    CONTESTANTS[index % CONTESTANTS.len()]
}

/// Of the contestant that the others are compared with.
pub(crate) const CONTROL: &str = "#4a5568";
/// Neighbours far apart, because any two of them may lie side by side.
pub(crate) const CONTESTANTS: [&str; 7] = [
    BLUE, ORANGE, GREEN, VERMILLION, "#56b4e9", "#cc79a7", "#6b5b95",
];
/// From cool to warm, because the series are client counts from few to many.
const SERIES: [&str; 8] = [
    "#56b4e9", BLUE, ORANGE, VERMILLION, GREEN, "#cc79a7", "#6b5b95", "#4a5568",
];
