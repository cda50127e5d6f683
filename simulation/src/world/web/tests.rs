use super::*;

#[test]
fn http_dates_read_back_what_they_wrote() {
    assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    for unix_s in (0..4_000_000_000u64).step_by(7_654_321) {
        assert_eq!(unix_from_http_date(&http_date(unix_s)), Some(unix_s));
    }
}

#[test]
fn host_names_and_numbers_agree() {
    for plan in [WebPlan::small(1), WebPlan::small(1).with_names(), WebPlan::bench(1, 70_000, 1)] {
        let web = Web::new(plan);
        for host in (0..web.host_count()).step_by(1 + web.host_count() as usize / 5_000) {
            assert_eq!(web.host_number(&web.host_name(host)), Some(host));
            assert_eq!(web.host_number(&web.host_name(host).to_uppercase()), Some(host));
        }
        for wrong in ["", "localhost", "127.0.0.1", "127.77.255.1", "www.anchor0.test", "10.77.0.1", "slow.odd7.test"] {
            assert_eq!(web.host_number(wrong), None, "{wrong}");
        }
    }
}

#[test]
fn paths_and_pages_agree() {
    let web = Web::new(WebPlan::bench(3, 5, 400));
    for (host, page) in (0..5).flat_map(|host| (0..400).map(move |page| (host, page))) {
        assert_eq!(web.page_at(host, &web.page_path(host, page)), Some(page));
    }
    assert_eq!(web.page_at(0, "/nothing-1"), None);
    assert_eq!(web.page_at(0, &web.page_path(0, 399).replace("399", "400")), None);
}
