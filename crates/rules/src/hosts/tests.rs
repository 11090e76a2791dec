//! Hosts as people write them, and as the net reads them.

use super::*;

fn hosts(text: &str) -> Vec<String> {
    let checked = |host: Host<'_>| {
        assert!(host.start < host.end && host.end <= text.len(), "{host:?} in {text}");
        assert!(text.is_char_boundary(host.start) && text.is_char_boundary(host.end));
        host.name.into_owned()
    };
    find_hosts(text).into_iter().map(checked).collect()
}

#[test]
fn hosts_are_found_in_usual_forms() {
    for (text, expected) in [
        ("https://Bad.Example/a?b#c", &["bad.example"][..]),
        ("see http://user:pw@bad.example:8080/x, or ok.example.", &["bad.example", "ok.example"]),
        ("(https://a.example)", &["a.example"]),
        ("https://a.example?to=https://b.example/", &["a.example", "b.example"]),
        ("write to me@mail.example now", &["mail.example"]),
        ("<a href=\"//c.example/x\">", &["c.example"]),
        ("https://bücher.example/", &["xn--bcher-kva.example"]),
        ("https://ＢＡＤ。example/", &["bad.example"]),
        ("http://localhost/ x.y", &["localhost", "x.y"]),
        ("https://a.example,https://b.example", &["a.example", "b.example"]),
        ("no hosts here! : / // :// ... é @", &[]),
        ("http://", &[]),
        ("trailing.dot. ...dots..", &["trailing.dot"]),
        ("https://a.example/b.html#c.d see https://a.example:80/b.html", &["a.example", "a.example"]),
        ("https://a.example/1.a@2.a~3.a+4.a!5.a$6.a*7.a", &["a.example"]),
        ("http://me:pw@localhost/ https://a.example:/b.example", &["localhost", "a.example", "b.example"]),
    ] {
        assert_eq!(hosts(text), expected, "{text}");
    }
}

#[test]
fn symbols_next_to_a_host_do_not_hide_it() {
    for (text, expected) in [
        ("bad.example/go?to=https://ok.example", &["bad.example", "ok.example"][..]),
        ("bad.example,https://ok.example/", &["bad.example", "ok.example"]),
        ("ok.example,bad.example;c.example", &["ok.example", "bad.example", "c.example"]),
        ("see:bad.example url=bad.example x：bad.example", &["bad.example"; 3]),
        ("[x](bad.example) x(bad.example) 1)bad.example", &["bad.example"; 3]),
        ("me@bad.example,you@x.org", &["bad.example", "x.org"]),
        ("🅱bad.example bad.example🅿 🅾\u{fe0f}bad.example", &["bad.example"; 3]),
        (
            "https://bad.example🅱\u{fe0f}/x https://ok.example/?u=🅐bad.example",
            &["bad.example", "ok.example", "bad.example"],
        ),
        ("link→bad.example hello…bad.example bad.example’s 👉bad.example", &["bad.example"; 4]),
        ("https:/bad.example/ HTTP:\\\\bad.example x/bad.example", &["bad.example"; 3]),
        ("https://ok.example/?u=bad.example", &["ok.example", "bad.example"]),
        ("https://ok.example/https%3A%2F%2Fbad.example%2F", &["ok.example", "bad.example"]),
        ("https://me:secret@bad.example:80/a.b,c.example", &["bad.example", "c.example"]),
        ("https://ok.example@bad.example/", &["bad.example"]),
        ("*bad.example* _bad.example_ ~bad.example~", &["bad.example"; 3]),
        ("bad\u{ad}.exam\u{200b}ple \u{200b}bad.example\u{200b}", &["bad.example"; 2]),
        ("विकि.example", &["xn--11b7d4ab.example"]),
        ("http://b%61d.example/ https://BAD%2Eexample", &["bad.example"; 2]),
        ("https://www.B%C3%BCcher.example/x", &["www.xn--bcher-kva.example"]),
        ("%62ad.example%2e, b%C2%ADad.e\u{200b}xam%70le", &["bad.example"; 2]),
        ("https://ok.example/b%61d.example", &["ok.example"]),
        // No character of a host, or none at all: a sign like others.
        ("%2Fbad.example %F0%9F%91%89bad.example 100%bad.example", &["bad.example"; 3]),
        // What the net reads as other letters, or not at all.
        ("https://casi№.example/ ™.example", &["casino.example", "tm.example"]),
        ("b\u{2063}ad\u{206a}.example\u{2061} b\u{180e}ad%E2%81%A3.example", &["bad.example"; 2]),
        ("bad－site.example －bad﹣site.example＿", &["bad-site.example"; 2]),
        ("㊊.example", &["xn--7ov.example"]),
    ] {
        // Symbols form hosts of their own with the parts between them.
        let mut found = hosts(text);
        found.retain(|host| expected.contains(&&**host) || !host.contains("xn--"));
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn host_with_a_symbol_is_found_beside_hosts_split_by_it() {
    for (text, expected) in [
        ("https://☃.example/", &["xn--n3h.example"][..]),
        ("at ☃.example, i❤.ws or i❤\u{fe0f}.ws", &["xn--n3h.example", "xn--i-7iq.ws", "xn--i-7iq.ws"]),
        ("https://%E2%98%83%2Eexample?x=☃.example", &["xn--n3h.example"; 2]),
        ("https://www.i❤.ws:80/☃.example", &["www.i", "www.xn--i-7iq.ws"]),
        ("me☃@☃.example", &["xn--n3h.example"]),
        ("👉bad.example", &["bad.example", "xn--bad-k113b.example"]),
        ("👉\u{fe0f}bad.example", &["bad.example", "xn--bad-k113b.example"]),
        ("ok.example→bad.example", &["ok.example", "bad.example", "ok.xn--examplebad-799e.example"]),
        ("good👍 see ok.example ❤", &["ok.example"]),
    ] {
        assert_eq!(hosts(text), expected, "{text}");
    }
}

#[test]
fn host_with_a_symbol_is_found_beside_more_symbols() {
    let (heart, snow) = ("xn--i-7iq.ws", "xn--n3h.example");
    for (text, expected, not) in [
        ("👉i❤.ws", &[heart][..], "ws"),
        ("i❤.ws👈 👉i❤.ws.👈", &[heart, heart], "ws"),
        ("→→i❤.ws→→", &[heart], "ws"),
        ("👉🏽☃.example/x", &[snow], "example"),
        ("ok.example→☃.example→x", &["ok.example", snow], "example"),
        ("i❤.ws→i❤.ws", &[heart, heart], "ws"),
        ("https://☃.example→i❤.ws, (→☃.example)", &[snow, heart, snow], "ws"),
        ("%E2%86%92i%E2%9D%A4.ws%E2%86%92", &[heart], "ws"),
        ("https://ok.example/a→i❤.ws→me@x", &["ok.example", heart], "ws"),
        ("👉☃.☃.example", &["xn--n3h.xn--n3h.example"], "example"),
        ("→i❤%2Ews", &[heart], "ws"),
        ("👉x.☃ 👉x.☃.-👈", &[], "x.xn--n3h"),
        // A part begins after a symbol, and ends before one.
        ("https://ok.example/i❤.ws→", &["ok.example"], heart),
        ("→i❤.ws@x", &[], heart),
        ("ai❤.ws→", &[], heart),
    ] {
        let mut found = hosts(text);
        found.retain(|host| expected.contains(&&**host) || host == not);
        assert_eq!(found, expected, "{text}");
    }
    for (beside, signs, is_found) in [("👉", 1, true), ("👉", 8, true), ("👉", 9, false), ("…", 9, true)]
    {
        let name = format!("{}.ws", "☃".repeat(signs));
        let host = url::Host::parse(&name).map(|host| host.to_string());
        let found = hosts(&format!("{beside}{name}{beside}"));
        assert!(host.is_ok_and(|host| found.contains(&host) == is_found), "{beside}{name}");
    }
}

#[test]
fn tabs_and_line_ends_are_removed_from_addresses() {
    for (text, name, place) in [
        ("https://bad.exa\tmple/", "bad.example", "bad.exa\tmple"),
        ("\thttps:\n//\rb\r\nad.example\t\n:80/x", "bad.example", "b\r\nad.example"),
        ("ht\ntps://www.b\tü\tcher.example", "www.xn--bcher-kva.example", "www.b\tü\tcher.example"),
        ("https://%6\t2ad.example", "bad.example", "%6\t2ad.example"),
        ("https://me:pw\n@bad.example", "bad.example", "bad.example"),
        ("https://bad.\n\n\nexample\n", "bad.example", "bad.\n\n\nexample"),
        ("\u{1f} https://bad.example\u{1}", "bad.example", "bad.example"),
    ] {
        let found = hosts_of_address(text);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        assert_eq!((&*found[0].name, &text[found[0].start..found[0].end]), (name, place), "{text:?}");
        let url = url::Url::parse(text);
        assert_eq!(url.as_ref().ok().and_then(url::Url::host_str), Some(name), "{text:?}");
    }
    assert_eq!(hosts_of_address("\t\n"), []);
    // In a text each line has hosts of its own.
    assert_eq!(hosts("bad.example\nnext ok.example\tx"), ["bad.example", "ok.example"]);
}

#[test]
fn prefix_of_a_name_does_not_hide_its_suffix() {
    for (before, inside) in [
        ("a".to_owned() + &".".repeat(300), String::new()),
        ("sub.".repeat(9_000), String::new()),
        ("ü.".repeat(9_000), String::new()),
        ("x".repeat(300) + ".", String::new()),
        (String::new(), "\u{200b}".repeat(20_000)),
        ("é".to_owned(), "%E2%80%8B".repeat(5_000)),
        (String::new(), "\u{fe0f}\u{ad}".repeat(5_000)),
        (String::new(), "\u{2062}\u{3164}".repeat(5_000)),
    ] {
        let before = if inside.is_empty() { before } else { format!("{before}.") };
        let found = hosts(&format!("see {before}bad.ex{inside}ample now"));
        let [found] = &*found else { panic!("{found:?}") };
        assert!(found.ends_with("bad.example") && found.len() <= 253, "{found}");
        assert!(self_and_parents(found).any(|name| name == "bad.example"), "{found}");
    }
    // A label that is cut off is another one.
    let cut = format!("{}bad.{}.example", "x".repeat(300), "y".repeat(240));
    assert_eq!(hosts(&cut), [format!("{}.example", "y".repeat(240))]);
    assert_eq!(hosts(&format!("x.{}", "y".repeat(254))), [""; 0]);
}

#[test]
fn host_names_are_compared_up_to_the_maximum_length() {
    let name = |first: usize| format!("{}.{}bad.example", "x".repeat(first), "abcde.".repeat(40));
    assert_eq!(name(1).len(), 253);
    assert_eq!(hosts(&name(1)), [name(1)]);
    assert_eq!(hosts(&name(2)), [name(2)[3..].to_owned()]);
}

#[test]
fn user_info_of_an_address_is_searched_within_bounds() {
    for beside in ["<", ">", "\"", "`", "|", "{", "}", " "] {
        assert_eq!(hosts(&format!("http://localhost{beside}me@x")), ["localhost"], "{beside}");
    }
    let far = |length: usize| hosts(&format!("http://localhost:{}@x", "p".repeat(length)));
    assert_eq!((far(251), far(252)), (vec!["x".to_owned()], vec!["localhost".to_owned()]));
}

#[test]
fn host_characters_are_read_as_idna_reads_them() {
    let (mut plain, mut folded, mut refused, mut signs) = (0, 0, 0, 0);
    for c in ('\u{80}'..=char::MAX).filter(|c| !c.is_whitespace()) {
        let link = format!("za{c}bz.example");
        let parsed = url::Host::parse(&link).ok().map(|host| host.to_string());
        let is_plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        match parsed {
            Some(name) if is_plain(&name) && !name.contains("xn--") => {
                plain += 1;
                assert_eq!(hosts(&format!("https://{link}/")), [name], "{c:?}");
            }
            Some(name) if is_part(c) => {
                folded += usize::from(!is_letter(c));
                assert_eq!(hosts(&format!("https://{link}/")), [name], "{c:?}");
            }
            None if is_letter(c) => {}
            parsed => {
                refused += 1;
                let mut found = hosts(&format!("see {c}bad.example, bad.example{c}"));
                found.retain(|host| !host.contains("xn--"));
                assert_eq!(found, ["bad.example"; 2], "{c:?}");
                let found = hosts(&format!("https://{link}/"));
                match parsed {
                    Some(name) if is_sign(c) => {
                        signs += 1;
                        assert!(found.contains(&name), "{c:?}");
                    }
                    // Some form another host with it, which cannot be registered.
                    _ => {}
                }
            }
        }
        assert!(!is_letter(c) || is_removed(c) == map_by_idna(c).next().is_none(), "{c:?}");
    }
    let counts = (plain, folded, refused, signs);
    assert!(plain > 1_300 && folded > 500 && refused > 100_000 && signs > 3_000, "{counts:?}");
}

#[test]
fn name_is_followed_by_its_parent_domains() {
    assert_eq!(self_and_parents("a.b.example").collect::<Vec<_>>(), ["a.b.example", "b.example", "example"]);
}
