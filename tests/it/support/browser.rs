//! Browser of the console: keeps the cookie, follows no redirect, and sends forms with their hidden fields.

use reqwest::{
    Method,
    header::{CONTENT_TYPE, COOKIE, HeaderMap, LOCATION, SET_COOKIE},
};

use super::Demo;

pub(crate) struct Browser {
    http: reqwest::Client,
    url: String,
    /// `name=value`
    pub(crate) cookie: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Page {
    /// Path that the browser is sent to.
    pub(crate) fn location(&self) -> &str {
        self.headers.get(LOCATION).map_or("", |to| to.to_str().unwrap())
    }

    /// Texts of the page, each with `true` if an element isolates its direction.
    pub(crate) fn texts(&self) -> Vec<(&str, bool)> {
        const VOID: [&str; 5] = ["!DOCTYPE", "meta", "link", "input", "br"];
        let (mut texts, mut open) = (Vec::new(), Vec::new());
        for part in self.body.split('<').skip(1) {
            let (tag, text) = part.split_once('>').expect("a tag ends");
            let name = tag.split([' ', '/']).find(|word| !word.is_empty()).unwrap_or_default();
            if tag.starts_with('/') {
                open.pop();
            } else if !VOID.contains(&name) {
                open.push(name == "bdi" || tag.contains(" dir=\"auto\""));
            }
            texts.push((text, open.contains(&true)));
        }
        texts
    }

    /// Hidden fields of the form with this action.
    pub(crate) fn hidden_fields(&self, action: &str) -> Vec<(String, String)> {
        let start = format!("action=\"{action}\">");
        let form = self.body.split_once(&start).unwrap_or_else(|| panic!("no {start} in {}", self.body)).1;
        let form = form.split_once("</form>").expect("the form's end").0;
        let inputs = form.split("<input type=\"hidden\" name=\"").skip(1);
        let pair = |input: &str| {
            let (name, rest) = input.split_once("\" value=\"").expect("a value");
            (name.to_owned(), unescaped(rest.split('"').next().expect("the value's end")))
        };
        inputs.map(pair).collect()
    }
}

fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

impl Browser {
    #[expect(clippy::disallowed_methods, reason = "a test talks to the process that it started")]
    pub(crate) fn new(demo: &Demo) -> Self {
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let http = http.timeout(tidegate_test_support::PATIENCE).build().unwrap();
        Self { http, url: demo.var("TIDEGATE_ADMIN_URL").to_owned(), cookie: None }
    }

    /// A browser that has signed in with a key.
    pub(crate) async fn signed_in(demo: &Demo, key: &str) -> Self {
        let mut browser = Self::new(demo);
        let page = browser.sign_in(key).await;
        assert_eq!((page.status, page.location()), (303, "/"), "{}", page.body);
        browser
    }

    /// Sends a key with the form of the sign-in page.
    pub(crate) async fn sign_in(&mut self, key: &str) -> Page {
        let page = self.get("/sign-in").await;
        assert_eq!(page.status, 200, "{}", page.body);
        self.send(&page, "/sign-in", &[("key", key)]).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Page {
        self.request(Method::GET, path, None, &[]).await
    }

    /// Sends the form of a page with its hidden fields and `fields`.
    pub(crate) async fn send(&mut self, page: &Page, action: &str, fields: &[(&str, &str)]) -> Page {
        let hidden_fields = page.hidden_fields(action);
        let hidden_pairs = hidden_fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all: Vec<_> = hidden_pairs.chain(fields.iter().copied()).collect();
        self.post(action, &all, &[]).await
    }

    /// Sends `fields` without the hidden fields of a page.
    pub(crate) async fn post(
        &mut self,
        path: &str,
        fields: &[(&str, &str)],
        headers: &[(&str, &str)],
    ) -> Page {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        self.request(Method::POST, path, Some(body), headers).await
    }

    pub(crate) async fn request(
        &mut self,
        method: Method,
        path: &str,
        form: Option<String>,
        headers: &[(&str, &str)],
    ) -> Page {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(cookie) = &self.cookie {
            request = request.header(COOKIE, cookie);
        }
        if let Some(form) = form {
            request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        if let Some(set) = answer.headers().get(SET_COOKIE) {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            self.cookie = (!pair.ends_with('=')).then(|| pair.to_owned());
        }
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Page { status, headers, body: answer.text().await.unwrap() }
    }
}
