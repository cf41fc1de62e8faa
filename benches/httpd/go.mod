module httpd

go 1.18
