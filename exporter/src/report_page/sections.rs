//! Sections of the page. Tables and bars need no script; charts are drawn from a data element, each with a table of the same figures.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    OPINION, PageOptions,
    agreement::{ItemAnswers, comparisons, direct_answers, most_agreed, most_divisive},
    bundle_content::{BundleContent, Item, Phase, Stance, StanceCounts},
    data_card_words::{describe_card, describe_sharing},
    html::{Html, format_count, format_number, format_share},
    opinion_map::{OpinionMap, TypicalStatement, compute_map},
    participation::Series,
    policy_figures::{PolicyFigures, collect_policy_figures},
};
use crate::timestamp::Timestamp;

/// Script of the page: the vendored library with its licence, and the charts of this page.
const SCRIPT: &str = concat!(
    "/*!\n",
    include_str!("vendor/LICENSE-uPlot"),
    "\n*/\n",
    include_str!("vendor/uPlot.iife.min.js"),
    include_str!("charts.js"),
);
const STYLE: &str = concat!(include_str!("vendor/uPlot.min.css"), "\n", include_str!("page.css"));

/// Number of items in each ranking.
const RANKED_ITEMS: usize = 10;
/// Items of a phase up to which its table is open at first.
const MAX_OPEN_ITEMS: usize = 15;
/// Maximum number of policies in the table.
const MAX_POLICIES: usize = 500;
const GROUP_NAMES: [&str; 5] = ["A", "B", "C", "D", "E"];
/// Classes with the color of each group.
const GROUP_CLASSES: [&str; 5] = ["group-a", "group-b", "group-c", "group-d", "group-e"];

/// Result of the search for an opinion map.
enum MapResult {
    /// The bundle has no votes of single participants on statements.
    NotApplicable,
    TooManyVotes,
    TooFewVotes,
    Map(OpinionMap),
}

/// Renders the page. Takes the votes out of the content.
pub(super) fn render(content: &mut BundleContent, options: &PageOptions) -> String {
    let map = find_map(content);
    let content = &*content;
    let series = content.participation.series();
    let answers = ItemAnswers::collect(content);
    let mut html = Html::default();
    write_head(&mut html, content);
    write_title(&mut html, content);
    write_totals(&mut html, content);
    write_data_card(&mut html, content, options);
    write_participation(&mut html, content, &series);
    write_map(&mut html, content, &map);
    write_policies(&mut html, content);
    write_rankings(&mut html, content, &answers);
    write_phases(&mut html, content, &answers, options.max_items);
    write_origin(&mut html, content);
    html.markup("</main>\n");
    html.json_island("report-data", &chart_data(&series, &map));
    html.markup("<script>").markup(SCRIPT).markup("</script>\n</body>\n</html>\n");
    html.finish()
}

fn find_map(content: &mut BundleContent) -> MapResult {
    if content.votes.has_overflowed() {
        return MapResult::TooManyVotes;
    }
    let phases = &content.phases;
    let is_opinion = |phase: u32| phases.get(phase as usize).is_some_and(|phase| phase.kind == OPINION);
    let Some((phase, votes)) = content.votes.take_longest(is_opinion) else {
        return MapResult::NotApplicable;
    };
    // Columns in the order of the list, so that the order of the lists in the file makes no difference.
    let column_rank = |item: u32| {
        let item = content.items.get(item as usize).filter(|item| content.status_of(item) != "rejected");
        item.and_then(|item| item.listed_at)
    };
    compute_map(phase, &votes, column_rank).map_or(MapResult::TooFewVotes, MapResult::Map)
}

/// Source of an inline script or style for the content security policy.
fn hash_source(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

fn write_head(html: &mut Html, content: &BundleContent) {
    html.markup("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    // Hashes allow exactly the script and the style of this page, so that a text of the bundle cannot run even if it became markup.
    html.markup("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src ");
    html.markup_of_hash(&hash_source(SCRIPT)).markup("; style-src ").markup_of_hash(&hash_source(STYLE));
    html.markup("; base-uri 'none'; form-action 'none'\">\n");
    html.markup("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.markup("<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"robots\" content=\"noindex\">\n<title>");
    html.text(title_of(content))
        .markup("</title>\n<style>")
        .markup(STYLE)
        .markup("</style>\n</head>\n<body>\n<main>\n");
}

fn title_of(content: &BundleContent) -> &str {
    match content.field_text("source", "title") {
        "" => "Data bundle",
        title => title,
    }
}

fn write_title(html: &mut Html, content: &BundleContent) {
    html.markup("<header>\n<p class=\"kicker\">Report on a data bundle</p>\n<h1 dir=\"auto\">");
    html.text(title_of(content)).markup("</h1>\n");
    let description = content.field_text("source", "description");
    if !description.is_empty() {
        html.markup("<p class=\"description\" dir=\"auto\">").text(description).markup("</p>\n");
    }
    let tool = content.field_text("source", "tool");
    let exported_at = content.head.get("exportedAt").and_then(Value::as_str).unwrap_or_default();
    html.markup("<p class=\"muted\">");
    let facts =
        [("From ", tool), ("exported ", exported_at)].into_iter().filter(|(_, fact)| !fact.is_empty());
    for (index, (word, fact)) in facts.enumerate() {
        html.markup(if index > 0 { ", " } else { "" }).markup(word).text(fact);
    }
    html.markup("</p>\n</header>\n");
    if content.findings > 0 {
        html.markup("<p class=\"warning\" role=\"alert\">The bundle is not valid: ");
        html.text(format_count(content.findings, "place"));
        html.markup(if content.findings == 1 { " violates" } else { " violate" });
        html.markup(" the schema, so figures on this page may be wrong. <code>tidegate bundle validate</code> lists them.</p>\n");
    }
}

fn write_totals(html: &mut Html, content: &BundleContent) {
    let summary = content.head.get("summary").unwrap_or(&Value::Null);
    html.markup("<section>\n<h2>Totals</h2>\n<dl class=\"tiles\">\n");
    let mut write_tile = |name: &'static str, value: String, note: &str| {
        html.markup("<div><dt>").markup(name).markup("</dt><dd>").text(value);
        if !note.is_empty() {
            html.markup("<small>").text(note).markup("</small>");
        }
        html.markup("</dd></div>\n");
    };
    // If no response names its participant, only the summary has their number.
    match summary["participants"].as_u64() {
        Some(count) if content.participants == 0 && count > 0 => {
            write_tile("Participants", format_number(count), "according to the summary");
        }
        // Public bundles can withhold the number, and then have no coverage either.
        _ if content.participants == 0 && content.responses > 0 => {
            write_tile("Participants", "–".to_owned(), "not stated");
        }
        _ => write_tile("Participants", format_number(content.participants), ""),
    }
    write_tile("Items", format_number(content.listed_items().count() as u64), "");
    let rows = match content.rows {
        rows if rows == content.responses => String::new(),
        rows => format!("in {}", format_count(rows, "row")),
    };
    write_tile("Answers", format_number(content.responses), &rows);
    let has_coverage = content.participants > 0 || summary["participants"] != 0;
    if let Some(coverage) = summary["coverage"].as_f64().filter(|_| has_coverage) {
        write_tile("Coverage", format_share(coverage), "of the possible answers");
    }
    let listed_phases = content.phases.iter().filter(|phase| phase.listed_at.is_some()).count();
    write_tile("Phases", format_number(listed_phases as u64), "");
    html.markup("</dl>\n");
    if content.unlinked > 0 && content.unlinked < content.responses {
        html.markup("<p>").text(format_count(content.unlinked, "answer"));
        html.markup(if content.unlinked == 1 { " does" } else { " do" })
            .markup(" not name a participant.</p>\n");
    }
    html.markup("</section>\n");
}

fn write_data_card(html: &mut Html, content: &BundleContent, options: &PageOptions) {
    let card = content.head.get("dataCard").unwrap_or(&Value::Null);
    html.markup("<section>\n<h2>Data card</h2>\n<p class=\"");
    html.markup(if card["suitableForPublicSharing"] == true { "note good" } else { "note" });
    html.markup("\">").markup(describe_sharing(card)).markup("</p>\n<ul>\n");
    for sentence in describe_card(card, options.naming) {
        html.markup("<li>").text(sentence).markup("</li>\n");
    }
    html.markup("</ul>\n");
    if !content.limitations.is_empty() {
        html.markup("<h3>Limitations</h3>\n");
        write_list(html, &content.limitations);
    }
    html.markup("</section>\n");
}

fn write_list(html: &mut Html, texts: &[String]) {
    html.markup("<ul>\n");
    for text in texts {
        html.markup("<li dir=\"auto\">").text(text).markup("</li>\n");
    }
    html.markup("</ul>\n");
}

fn format_time(seconds: i64, unit: &str) -> String {
    let time = Timestamp::from_seconds(seconds).map(|time| time.to_string()).unwrap_or_default();
    let length = if unit == "hour" { "2024-05-06T07:08".len() } else { "2024-05-06".len() };
    time.get(..length).unwrap_or(&time).replace('T', " ")
}

fn write_participation(html: &mut Html, content: &BundleContent, series: &Series) {
    if content.rows == 0 {
        return;
    }
    html.markup("<section>\n<h2>Participation over time</h2>\n");
    let undated = content.participation.undated;
    if series.buckets.is_empty() {
        html.markup("<p>The answers have no times.</p>\n</section>\n");
        return;
    }
    let has_participants = content.participants > 0;
    html.markup("<h3>Answers per ").text(&series.unit).markup("</h3>\n");
    html.markup("<div class=\"chart\" id=\"answers-chart\" hidden></div>\n");
    if has_participants {
        html.markup(
            "<h3>Participants so far</h3>\n<div class=\"chart\" id=\"participants-chart\" hidden></div>\n",
        );
    }
    html.markup("<p class=\"muted\">Times are in UTC.");
    if undated > 0 {
        html.markup(" ").text(format_count(undated, "answer"));
        html.markup(if undated == 1 { " without a time is" } else { " without a time are" })
            .markup(" not in the chart.");
    }
    html.markup("</p>\n<details><summary>Figures</summary>\n<div class=\"scroll\"><table class=\"figures\"><thead><tr><th>From</th><th>Answers</th>");
    html.markup(if has_participants { "<th>Participants so far</th>" } else { "" });
    html.markup("</tr></thead><tbody>\n");
    for bucket in series.buckets.iter().filter(|bucket| bucket.answers > 0) {
        html.markup("<tr><th>").text(format_time(bucket.start_seconds, &series.unit)).markup("</th>");
        write_number_cell(html, bucket.answers);
        if has_participants {
            write_number_cell(html, bucket.participants);
        }
        html.markup("</tr>\n");
    }
    html.markup("</tbody></table></div>\n</details>\n</section>\n");
}

fn write_number_cell(html: &mut Html, number: u64) {
    html.markup("<td>").text(format_number(number)).markup("</td>");
}

fn write_map(html: &mut Html, content: &BundleContent, map: &MapResult) {
    let reason = match map {
        MapResult::NotApplicable => return,
        MapResult::TooManyVotes => {
            "This bundle has more votes than an opinion map keeps in memory, so the page has none."
        }
        MapResult::TooFewVotes => {
            "Too few participants voted, or they voted too much alike, for an opinion map."
        }
        MapResult::Map(map) => {
            write_groups(html, content, map);
            return;
        }
    };
    html.markup("<section>\n<h2>Opinion map</h2>\n<p>").markup(reason).markup("</p>\n</section>\n");
}

fn write_groups(html: &mut Html, content: &BundleContent, map: &OpinionMap) {
    html.markup("<section>\n<h2>Opinion map</h2>\n<p>Each point is a participant. Participants with similar votes are near each other. ");
    html.markup("The map shows ")
        .text(format_count(map.placed as u64, "participant"))
        .markup(" and their votes on ");
    html.text(format_count(map.statements as u64, "statement"));
    if content.phases.iter().filter(|phase| phase.kind == OPINION).count() > 1 {
        html.markup(" in the phase ").text(phase_name(&content.phases[map.phase as usize]));
    }
    html.markup(", in ").text(format_count(map.groups.len() as u64, "group")).markup(".</p>\n");
    html.markup("<div class=\"chart\" id=\"map-chart\" hidden></div>\n<p class=\"muted\">The horizontal axis accounts for ");
    html.text(format_share(map.variance_shares[0]))
        .markup(" of the differences between votes, the vertical axis for ");
    html.text(format_share(map.variance_shares[1]))
        .markup(" (first two principal components). Groups are found by k-means.");
    if map.unplaced > 0 {
        html.markup(" ").text(format_count(map.unplaced as u64, "participant"));
        html.markup(" with too few votes ")
            .markup(if map.unplaced == 1 { "is" } else { "are" })
            .markup(" left out.");
    }
    if map.points.len() < map.placed {
        html.markup(" The chart shows ")
            .text(format_number(map.points.len() as u64))
            .markup(" of the points.");
    }
    html.markup("</p>\n");
    for (index, group) in map.groups.iter().enumerate() {
        html.markup("<h3><span class=\"swatch ").markup(GROUP_CLASSES[index]).markup("\"></span>Group ");
        html.markup(GROUP_NAMES[index]).markup(" <span class=\"muted\">");
        html.text(format_count(group.size as u64, "participant")).markup(", ");
        html.text(format_share(group.size as f64 / map.placed as f64)).markup("</span></h3>\n");
        if group.typical_statements.is_empty() {
            html.markup("<p>No statement sets this group apart.</p>\n");
            continue;
        }
        html.markup("<table class=\"items\"><thead><tr><th>Statement typical of the group</th><th>Votes of the group</th><th>Other participants</th></tr></thead><tbody>\n");
        for statement in &group.typical_statements {
            write_typical_statement(html, content, statement);
        }
        html.markup("</tbody></table>\n");
    }
    html.markup("</section>\n");
}

fn write_typical_statement(html: &mut Html, content: &BundleContent, statement: &TypicalStatement) {
    html.markup("<tr>");
    let position = if statement.agrees { "The group agrees" } else { "The group disagrees" };
    write_item_cell(html, &content.items[statement.item as usize], Some(position.to_owned()));
    for votes in [&statement.votes, &statement.other_votes] {
        let mut counts = StanceCounts::default();
        counts[..3].copy_from_slice(votes);
        html.markup("<td>");
        write_counts(html, &counts);
        html.markup("</td>");
    }
    html.markup("</tr>\n");
}

/// Writes the cell of an item: its text, or its id if it has none, and a note.
fn write_item_cell(html: &mut Html, item: &Item, note: Option<String>) {
    html.markup("<td class=\"item\">");
    if item.text.is_empty() {
        html.markup("<code>").text(item.id()).markup("</code>");
    } else {
        html.markup("<span dir=\"auto\">").text(&item.text).markup("</span>");
    }
    if let Some(note) = note {
        html.markup("<small>").text(note).markup("</small>");
    }
    html.markup("</td>");
}

/// Words and classes of the stances in the order of their bars.
const DIRECT: [(Stance, &str, &str); 3] = [
    (Stance::Agree, "agree", "agree"),
    (Stance::Disagree, "disagree", "disagree"),
    (Stance::Pass, "pass", "pass"),
];
const COMPARED: [(Stance, &str, &str); 4] = [
    (Stance::Preferred, "preferred", "agree"),
    (Stance::NotPreferred, "not preferred", "disagree"),
    (Stance::Equal, "equal", "equal"),
    (Stance::PassedComparison, "pass", "pass"),
];

/// Writes a bar with the shares of the answers, and their counts as text.
fn write_counts(html: &mut Html, counts: &StanceCounts) {
    if direct_answers(counts) > 0 {
        write_bar(html, counts, &DIRECT, direct_answers(counts));
    }
    if comparisons(counts) > 0 {
        write_bar(html, counts, &COMPARED, comparisons(counts));
    }
    if direct_answers(counts) == 0 && comparisons(counts) == 0 {
        html.markup("<span class=\"muted\">no answers</span>");
    }
}

fn write_bar(
    html: &mut Html,
    counts: &StanceCounts,
    stances: &[(Stance, &'static str, &'static str)],
    total: u64,
) {
    let count_of = |stance: Stance| counts[stance as usize];
    html.markup(
        "<svg class=\"bar\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
    );
    let mut sum = 0_u64;
    let offset = |sum: u64| (sum.min(total) as f64 / total as f64 * 1000.0).round();
    for (stance, _, class) in stances.iter().filter(|(stance, ..)| count_of(*stance) > 0) {
        let start = offset(sum);
        sum = sum.saturating_add(count_of(*stance));
        html.markup("<rect class=\"").markup(class).markup("\" x=\"").text(start).markup("\" width=\"");
        html.text(offset(sum) - start).markup("\" height=\"10\"/>");
    }
    html.markup("</svg><small class=\"counts\">");
    let listed_stances =
        stances.iter().filter(|(stance, ..)| !matches!(stance, Stance::Equal) || count_of(*stance) > 0);
    for (index, (stance, word, _)) in listed_stances.enumerate() {
        html.markup(if index > 0 { ", " } else { "" });
        html.markup("<span>").text(format_number(count_of(*stance))).markup(" ").markup(word);
        if count_of(*stance) > 0 {
            html.markup(" (").text(format_share(count_of(*stance) as f64 / total as f64)).markup(")");
        }
        html.markup("</span>");
    }
    html.markup("</small>");
}

fn phase_name(phase: &Phase) -> &str {
    match (phase.title.as_str(), phase.id.as_str()) {
        ("", "") => "(without an id)",
        ("", id) => id,
        (title, _) => title,
    }
}

fn write_rankings(html: &mut Html, content: &BundleContent, answers: &[ItemAnswers]) {
    let rankings: [(&'static str, &'static str, _); 2] = [
        (
            "Most agreed items",
            "Ordered by the share of agreement, or of preference in comparisons. Few answers weigh less: the order is that of the lower end of the 95 % interval.",
            most_agreed(answers, RANKED_ITEMS),
        ),
        (
            "Most divisive items",
            "Items with high shares of both agreement and disagreement, few answers weighing less.",
            most_divisive(answers, RANKED_ITEMS),
        ),
    ];
    let has_several_phases = content.phases.iter().filter(|phase| phase.responses > 0).count() > 1;
    for (title, explanation, ranked) in rankings.into_iter().filter(|(.., ranked)| !ranked.is_empty()) {
        html.markup("<section>\n<h2>").markup(title).markup("</h2>\n<p class=\"muted\">").markup(explanation);
        html.markup(
            "</p>\n<table class=\"items\"><thead><tr><th>Item</th><th>Answers</th></tr></thead><tbody>\n",
        );
        for answers in ranked {
            let phase =
                has_several_phases.then(|| phase_name(&content.phases[answers.phase as usize]).to_owned());
            html.markup("<tr>");
            write_item_cell(html, answers.item, phase);
            html.markup("<td>");
            write_counts(html, &answers.counts);
            html.markup("</td></tr>\n");
        }
        html.markup("</tbody></table>\n</section>\n");
    }
}

fn write_phases(html: &mut Html, content: &BundleContent, answers: &[ItemAnswers], max_items: usize) {
    html.markup("<section>\n<h2>Agreement by phase and item</h2>\n");
    if content.phases.is_empty() {
        html.markup("<p>The bundle has no phases.</p>\n");
    }
    let mut answers_by_phase = vec![Vec::new(); content.phases.len()];
    for answers in answers {
        answers_by_phase[answers.phase as usize].push(answers);
    }
    let mut unanswered_by_phase = vec![0_u64; content.phases.len()];
    for item in content.listed_items().filter(|item| !item.answered_phases().contains(&item.phase)) {
        unanswered_by_phase[item.phase as usize] += 1;
    }
    for number in content.phase_order() {
        let phase = &content.phases[number];
        let (of_phase, without_answers) = (&mut answers_by_phase[number], unanswered_by_phase[number]);
        // Stable, so items with equal numbers of answers stay in the order of the bundle.
        of_phase.sort_by_key(|answers| std::cmp::Reverse(answers.total()));
        html.markup("<h3 dir=\"auto\">").text(phase_name(phase)).markup("</h3>\n<p class=\"muted\">");
        let mut facts = Vec::new();
        facts.extend((!phase.kind.is_empty()).then(|| format!("Type {}", phase.kind)));
        facts.extend((!phase.status.is_empty()).then(|| format!("status {}", phase.status)));
        facts.push(format_count(phase.responses, "answer"));
        facts.extend(
            phase.participants.filter(|count| *count > 0).map(|count| format_count(count, "participant")),
        );
        html.text(facts.join(", ")).markup("</p>\n");
        if phase.responses > 0 {
            html.markup("<div class=\"total\">");
            write_counts(html, &phase.counts);
            html.markup("</div>\n");
        }
        if !of_phase.is_empty() {
            html.markup(if of_phase.len() <= MAX_OPEN_ITEMS { "<details open>" } else { "<details>" });
            html.markup("<summary>")
                .text(format_count(of_phase.len() as u64, "item"))
                .markup(" with answers</summary>\n");
            html.markup(
                "<table class=\"items\"><thead><tr><th>Item</th><th>Answers</th></tr></thead><tbody>\n",
            );
            for answers in of_phase.iter().take(max_items) {
                write_answered_item(html, content, answers);
            }
            html.markup("</tbody></table>\n");
            let unlisted = of_phase.len().saturating_sub(max_items) as u64;
            if unlisted > 0 {
                html.markup("<p>").text(format_count(unlisted, "more item"));
                html.markup(" with fewer answers: <code>--items</code> lists more.</p>\n");
            }
            html.markup("</details>\n");
        }
        if without_answers > 0 {
            html.markup("<p class=\"muted\">").text(format_count(without_answers, "item"));
            html.markup(if without_answers == 1 { " has" } else { " have" })
                .markup(" no answers in this phase.</p>\n");
        }
    }
    html.markup("</section>\n");
}

fn write_answered_item(html: &mut Html, content: &BundleContent, answers: &ItemAnswers) {
    let item = answers.item;
    let mut facts = vec![content.status_of(item).to_owned(), content.origin_of(item).to_owned()];
    facts.extend((!item.text.is_empty()).then(|| item.id()));
    if item.suppressed_counts > 0 {
        facts.push(format!("{} hidden", format_count(item.suppressed_counts, "count")));
    }
    facts.retain(|fact| !fact.is_empty());
    html.markup("<tr>");
    write_item_cell(html, item, Some(facts.join(", ")));
    html.markup("<td>");
    write_counts(html, &answers.counts);
    html.markup("</td></tr>\n");
}

fn write_policies(html: &mut Html, content: &BundleContent) {
    let Some((policies, sums)) = collect_policy_figures(content) else { return };
    html.markup("<section>\n<h2>Decisions by policy</h2>\n<p>A claim says that an item breaks a policy. ");
    html.text(format_count(sums.decisions, "decision"));
    html.markup(if sums.decisions == 1 { " on a claim is" } else { " on claims are" }).markup(" recorded. ");
    match sums.overturn_rate() {
        Some(rate) => {
            html.markup("Of ")
                .text(format_count(sums.upheld.saturating_add(sums.overturned), "answered appeal"));
            html.markup(", ")
                .text(format_number(sums.overturned))
                .markup(" reversed the decision (")
                .text(format_share(rate));
            html.markup(").");
        }
        None => _ = html.markup("No appeal was answered."),
    }
    html.markup("</p>\n<div class=\"scroll\"><table class=\"figures\"><thead><tr><th>Policy</th><th>Overturn rate</th><th>Claims</th><th>Reports</th>");
    html.markup("<th>Violation</th><th>No violation</th><th>Left open</th><th>Appeals</th><th>Upheld</th><th>Overturned</th>");
    let has_suppressed = sums.suppressed_counts > 0;
    html.markup(if has_suppressed { "<th>Hidden counts</th>" } else { "" }).markup("</tr></thead><tbody>\n");
    for figures in policies.iter().take(MAX_POLICIES) {
        write_policy_row(html, figures, has_suppressed);
    }
    html.markup("</tbody><tfoot>\n");
    write_policy_row(html, &PolicyFigures { name: "All policies".to_owned(), ..sums }, has_suppressed);
    html.markup("</tfoot></table></div>\n<p class=\"muted\">Violation, no violation and left open are the answers of reviews. ");
    html.markup("The overturn rate is the share of answered appeals that reversed the decision.");
    if policies.len() > MAX_POLICIES {
        html.markup(" ").text(format_number((policies.len() - MAX_POLICIES) as u64));
        html.markup(" more policies with fewer claims are counted, but not listed.");
    }
    if has_suppressed {
        html.markup(" Small counts are hidden for privacy, so sums and rates leave them out.");
    }
    html.markup("</p>\n</section>\n");
}

fn write_policy_row(html: &mut Html, figures: &PolicyFigures, has_suppressed: bool) {
    html.markup("<tr><th dir=\"auto\">");
    if figures.name.is_empty() {
        html.markup("<code>").text(&figures.id).markup("</code>");
    } else {
        html.text(&figures.name);
    }
    html.markup("</th><td>");
    match figures.overturn_rate() {
        Some(rate) => html.text(format_share(rate)),
        None => html.markup("–"),
    };
    html.markup("</td>");
    let numbers = [
        figures.claims,
        figures.reports,
        figures.violations,
        figures.dismissals,
        figures.undecided,
        figures.appeals,
        figures.upheld,
        figures.overturned,
    ];
    for number in numbers.into_iter().chain(has_suppressed.then_some(figures.suppressed_counts)) {
        write_number_cell(html, number);
    }
    html.markup("</tr>\n");
}

fn write_origin(html: &mut Html, content: &BundleContent) {
    let head_text = |name: &str| content.head.get(name).and_then(Value::as_str).unwrap_or_default();
    html.markup("<section>\n<h2>Origin</h2>\n<dl class=\"facts\">\n");
    let facts: [(&'static str, &str); 9] = [
        ("Bundle", head_text("bundleId")),
        ("Exported", head_text("exportedAt")),
        ("Tool", content.field_text("source", "tool")),
        ("Source", content.field_text("source", "sourceId")),
        ("Address", content.field_text("source", "url")),
        ("Adapter", content.field_text("provenance", "adapter")),
        ("Converted", content.field_text("provenance", "transformedAt")),
        ("Schema", head_text("schema")),
        ("Kind", head_text("kind")),
    ];
    for (term, fact) in facts.into_iter().filter(|(_, fact)| !fact.is_empty()) {
        html.definition(term, fact);
    }
    html.markup("</dl>\n");
    if !content.artifacts.is_empty() {
        html.markup("<h3>Source files</h3>\n<div class=\"scroll\"><table class=\"figures\"><thead><tr><th>File</th><th>Role</th><th>Bytes</th><th>Rows</th></tr></thead><tbody>\n");
        for artifact in &content.artifacts {
            let text = |name: &str| artifact.get(name).and_then(Value::as_str).unwrap_or_default();
            html.markup("<tr><th dir=\"auto\">")
                .text(text("name"))
                .markup("</th><td>")
                .text(text("role"))
                .markup("</td>");
            for name in ["size", "rows"] {
                match artifact.get(name).and_then(Value::as_u64) {
                    Some(number) => write_number_cell(html, number),
                    None => _ = html.markup("<td>–</td>"),
                }
            }
            html.markup("</tr>\n");
        }
        html.markup("</tbody></table></div>\n");
    }
    if !content.outcomes.is_empty() {
        html.markup("<h3>Outcomes in the bundle</h3>\n<div class=\"scroll\"><table class=\"figures\"><thead><tr><th>Type</th><th>Number</th></tr></thead><tbody>\n");
        for (kind, count) in &content.outcomes {
            html.markup("<tr><th dir=\"auto\">").text(kind).markup("</th>");
            write_number_cell(html, *count);
            html.markup("</tr>\n");
        }
        html.markup("</tbody></table></div>\n");
    }
    if !content.notes.is_empty() {
        html.markup("<h3>Notes of the conversion</h3>\n");
        write_list(html, &content.notes);
    }
    html.markup("</section>\n");
}

/// Figures for the charts. Contains numbers and fixed names only, no text of the bundle.
fn chart_data(series: &Series, map: &MapResult) -> Value {
    let column = |value: fn(&super::participation::Bucket) -> Value| {
        series.buckets.iter().map(value).collect::<Vec<_>>()
    };
    let participation = json!({
        "width": series.width_seconds,
        "times": column(|bucket| json!(bucket.start_seconds)),
        "answers": column(|bucket| json!(bucket.answers)),
        "participants": column(|bucket| json!(bucket.participants)),
    });
    let map = match map {
        MapResult::Map(map) => {
            let groups = map.groups.iter().zip(GROUP_NAMES).enumerate().map(|(index, (group, name))| {
                let points = map.points.iter().filter(|(_, group)| *group == index);
                json!({
                    "name": name,
                    "center": group.center.map(round),
                    "points": points.map(|(point, _)| point.map(round)).collect::<Vec<_>>(),
                })
            });
            json!({ "groups": groups.collect::<Vec<_>>() })
        }
        _ => Value::Null,
    };
    json!({ "participation": participation, "map": map })
}

/// Rounds to three digits, which keeps the page small; never to -0.
fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0 + 0.0
}
